"""One browser for all tests of the site."""

from site_in_browser import browser as browser
