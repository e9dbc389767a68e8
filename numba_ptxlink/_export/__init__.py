"""What an export does whatever the front end: marks, signatures, link files, artifacts."""
