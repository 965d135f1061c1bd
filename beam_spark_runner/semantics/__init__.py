"""What windows and triggers mean. Beam decides; here its classes are asked."""
