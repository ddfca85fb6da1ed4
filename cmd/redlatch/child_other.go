//go:build !unix

package main

func isGuard([]string) bool { return false }

func guardMain([]string) {}
