package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestBranchBuildCache_LeavesTheCacheAlone(t *testing.T) {
	cache, dir := t.TempDir(), t.TempDir()
	buildCache = cache
	t.Cleanup(func() { buildCache = "" })
	if err := os.MkdirAll(filepath.Join(cache, "ab"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cache, "ab", "ab12-d"), []byte("built"), 0o600); err != nil {
		t.Fatal(err)
	}

	env, err := branchBuildCache(dir)
	if want := "GOCACHE=" + filepath.Join(dir, "go-build"); err != nil || env != want {
		t.Fatalf("branchBuildCache: %q, %v; want %q", env, err, want)
	}

	branch := filepath.Join(dir, "go-build", "ab")
	if text, err := os.ReadFile(filepath.Join(branch, "ab12-d")); err != nil || string(text) != "built" {
		t.Errorf("the branch has %q, %v, not what was built", text, err)
	}
	if err := os.WriteFile(filepath.Join(branch, "ab34-d"), []byte("mutant"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(filepath.Join(cache, "ab")); err != nil || len(files) != 1 {
		t.Errorf("after the end of the branch the cache has %v, %v; want the one file that was there", files, err)
	}
}
