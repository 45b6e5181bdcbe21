#!/bin/sh
# Sets the address of the repository, and the package's name in place of a clone, everywhere: once, before the first release.
# `sh .github/release/address.sh https://github.com/OWNER/relive`
set -eu
home=${1:?the address of the repository}
cd "$(dirname "$0")/../.."
sed -i "s#https://example.org/relive#$home#g" pyproject.toml .github/release/recipe.yaml .github/release/sb3_projects.rst
# The package index shows the README, too: its links have to be whole.
sed -i -E "s#\]\(((docs|examples|lab)/|[A-Z]+\.(md|cff))#](${home}/blob/main/\1#g; s#(src|srcset)=\"docs/#\1=\"${home}/raw/main/docs/#g" README.md
sed -i -E "/^<!-- install -->$/d; s/^relive is not on the package index yet\..*/With Python 3.11 or later:/; s/^pip install '\.\[/pip install 'relive[/" \
    README.md docs/index.md docs/start.md docs/stable-baselines3.md
