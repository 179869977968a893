"""Whole programs that use asyncgrad. Each says at its top what it shows and what it leaves out."""
