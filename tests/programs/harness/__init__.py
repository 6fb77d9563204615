"""What every program's test needs: a recorded directory, acknowledgements, endings, comparison of trees."""
