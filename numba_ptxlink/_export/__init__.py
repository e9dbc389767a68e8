"""Export functions marked by `@udf` and `@kernel`: the steps that are the same for all front ends."""
