"""What an export writes beside PTX: fat binaries and objects, for older tools and drivers, and its files."""
