"""Sensors learn together to predict dew from temperature, humidity and wind."""
