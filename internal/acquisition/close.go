package acquisition

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"
)

// CloseAll gives back what a client has, because it closes. It returns what could
// not be given back until ctx ended.
func CloseAll(ctx context.Context, held []*Acquisition) error {
	const atOnce = 16 // a client that holds very many closes in bounded pieces
	var g errgroup.Group
	g.SetLimit(atOnce)
	var mu sync.Mutex
	var all []error
	for _, a := range held {
		g.Go(func() error {
			if err := a.Close(ctx); err != nil {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, err)
			}
			return nil
		})
	}
	_ = g.Wait()
	return errors.Join(all...)
}
