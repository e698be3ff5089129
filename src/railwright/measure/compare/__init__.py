"""Measurements beside predictions: curves of collectives, steps of a training log, a load generator's"""
