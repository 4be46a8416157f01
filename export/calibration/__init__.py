"""What the activations of a checkpoint are like, on text, in the model's own two modes."""

from .calibrator import Calibrator
from .passages import Passage
from .reader import calibration_passages
from .texts import DEFAULT_TOKENS

__all__ = ["DEFAULT_TOKENS", "Calibrator", "Passage", "calibration_passages"]
