package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ownBuildCache makes go build into a cache of this command alone, which remove deletes. The go
// command keeps what it built for days, and a mutant's packages are of no use after its tests: in
// the user's cache, every run would leave some tens of gigabytes.
func ownBuildCache() (remove func(), err error) {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, fmt.Errorf("build cache: %w", err)
	}
	return func() { _ = os.RemoveAll(dir) }, os.Setenv("GOCACHE", dir)
}

// withSetting is the environment with one setting more, or with none.
func withSetting(setting string) []string {
	if setting == "" {
		return nil
	}
	return append(os.Environ(), setting)
}

// branchBuildCache makes a copy of the build cache in dir, for the builds of one mutant. The copy
// has hard links to the files, so that it takes no room. It returns the setting that go reads.
func branchBuildCache(dir string) (env string, err error) {
	from, to := os.Getenv("GOCACHE"), filepath.Join(dir, "go-build")
	err = filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Mkdir(filepath.Join(to, rel), 0o700)
		}
		return os.Link(name, filepath.Join(to, rel))
	})
	return "GOCACHE=" + to, err
}
