package main

// selfPath works even if an upgrade has replaced or removed the program meanwhile.
func selfPath() (string, error) { return "/proc/self/exe", nil }
