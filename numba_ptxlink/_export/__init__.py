"""Steps of an export that all front ends share: marks, signatures, link files, artifacts."""
