"""A stand-in for LeRobot: the names, the files and the order of writes of its learner and its data sets, by hand.

`STAND_IN_LAYOUT` says whose: that of "0.4.4", or that of its "main" branch.
"""
