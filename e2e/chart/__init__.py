"""What of the Helm chart is made from code."""
