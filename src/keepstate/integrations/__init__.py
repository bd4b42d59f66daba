"""Engines that run tasks, one room each; an integration knows keepstate's face and its engine."""
