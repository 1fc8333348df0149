"""Sensors in a meadow learn together: how much dew there will be, from temperature, humidity and wind."""
