"""What all other packages use: types, checks, frozen classes, nested values, arrays, memory, forks."""
