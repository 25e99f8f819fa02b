"""What a simulation showed: promises kept, errors of predictions, plots and traces."""
