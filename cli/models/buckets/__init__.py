"""Models from buckets of a storage that speaks S3."""
