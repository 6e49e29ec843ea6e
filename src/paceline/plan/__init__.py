"""Predictions before paying: batch size, speed, data and cost. Reads records, never imports torch, measures nothing."""
