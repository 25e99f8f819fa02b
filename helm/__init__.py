"""What is written about the chart by program: its schema where that follows the code, and its README."""
