package key

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/lockerr"
)

const acquisitionID = "kept-5f0c6f0e-6b8e-4d0a-9a38-0a3d1b8f3a11:7"

func TestAnExportedHoldIsAText(t *testing.T) {
	for _, name := range []string{"orders:42", "with space", "{a}b", "täg", "100%", "a+b", strings.Repeat("🔒", 128)} {
		e := Exported{Name: name, ID: acquisitionID, Fence: 1700000000000000}
		text := e.String()
		for _, r := range text {
			require.Contains(t, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~%+:", string(r))
		}
		got, err := ParseExported(text)
		require.NoError(t, err)
		require.Equal(t, e, got)
	}
}

func TestAnotherTextIsNoExportedHold(t *testing.T) {
	good := Exported{Name: "a", ID: acquisitionID, Fence: 7}.String()
	require.Equal(t, "redlatch:1:7:"+acquisitionID+":a", good)
	for _, text := range []string{
		"", "redlatch", "redlatch:1:", good + ":b", good + " ", " " + good, strings.Replace(good, ":1:", ":2:", 1),
		strings.Replace(good, ":7:", ":x:", 1), strings.Replace(good, ":7:", ":07:", 1), "redlatch:1:7:nobody:a", "redlatch:1:7:no:body:a",
		"redlatch:1:7:" + acquisitionID + ":%zz", "redlatch:1:7:" + acquisitionID + ":a b",
	} {
		_, err := ParseExported(text)
		require.ErrorIs(t, err, lockerr.ErrConfig, text)
		require.ErrorContains(t, err, "exported hold")
	}
}
