"""Load exported kernels and launch them, without a front end: manifests, arguments, streams."""
