"""What benches/roofline.py counts and predicts of a model on a device."""
