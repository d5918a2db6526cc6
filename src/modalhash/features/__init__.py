"""Feature extraction as scikit-learn transformers."""
