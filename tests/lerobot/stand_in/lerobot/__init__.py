"""A stand-in for LeRobot: the names of its learner and of its data sets, by hand.

`STAND_IN_LAYOUT` says whose: that of "0.4.4", or that of its "main" branch.
"""
