"""A home's hub that forecasts the temperature outside, trained on the hub itself."""
