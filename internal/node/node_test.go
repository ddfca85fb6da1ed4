package node

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A hub keeps a connection for each node. If the same client were another node each time, it would
// subscribe anew with each look at the topology.
func TestNodesOfOneClientAreEqual(t *testing.T) {
	one, other := redis.NewClient(new(redis.Options)), redis.NewClient(new(redis.Options))
	defer one.Close()
	defer other.Close()
	var err error
	master := MasterOf(func(context.Context, string) (*redis.Client, error) { return one, err })
	found, failed := master(t.Context(), "foo")
	require.NoError(t, failed)
	require.True(t, found == Of(one))
	require.False(t, found == Of(other))

	err = errors.New("no master")
	found, failed = master(t.Context(), "foo")
	require.Equal(t, err, failed)
	require.Nil(t, found)
}
