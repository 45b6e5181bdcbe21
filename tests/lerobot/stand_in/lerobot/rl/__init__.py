"""The learner."""
