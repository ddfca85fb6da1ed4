package main

import (
	"io/fs"
	"os"
	"path/filepath"
)

// buildCache is the directory in which go keeps what it builds. The go command keeps that for days,
// and a mutant's packages are of no use after its tests: in the user's cache, every run would leave
// some tens of gigabytes. Empty stands for the user's cache.
var buildCache string

// ownBuildCache makes go build into a cache of this command alone, which remove deletes.
func ownBuildCache() (remove func(), err error) {
	if buildCache, err = os.MkdirTemp("", "mutants"); err != nil {
		return nil, err
	}
	return func() { _ = os.RemoveAll(buildCache) }, os.Setenv("GOCACHE", buildCache)
}

// branchBuildCache makes a copy of the build cache in dir, for the builds of one mutant. The copy
// has hard links to the files, so it takes no room. It returns the setting that go reads, which is
// empty for the user's cache.
func branchBuildCache(dir string) (env string, err error) {
	if buildCache == "" {
		return "", nil
	}
	to := filepath.Join(dir, "go-build")
	err = filepath.WalkDir(buildCache, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(buildCache, name)
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

// withSetting is the environment with one setting more, or with none.
func withSetting(setting string) []string {
	if setting == "" {
		return nil
	}
	return append(os.Environ(), setting)
}
