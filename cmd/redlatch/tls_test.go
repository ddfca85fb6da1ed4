package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

// authority signs certificates, and has its own in a file.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.cert, a.key, a.file, _ = a.issue(name, template)
	return a
}

// issue makes a certificate. Without one of its own, the authority signs the first by itself.
func (a *authority) issue(name string, template *x509.Certificate) (_ *x509.Certificate, _ *ecdsa.PrivateKey, certFile, keyFile string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(a.t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	certFile, keyFile = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	require.NoError(a.t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(a.t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	return cert, key, certFile, keyFile
}

// server makes a certificate for 127.0.0.1, and for no name.
func (a *authority) server() (certFile, keyFile string) {
	_, _, certFile, keyFile = a.issue("server", &x509.Certificate{
		Subject: pkix.Name{CommonName: "server"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return certFile, keyFile
}

func (a *authority) client() (certFile, keyFile string) {
	_, _, certFile, keyFile = a.issue("client", &x509.Certificate{Subject: pkix.Name{CommonName: "client"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return certFile, keyFile
}

// listenTLS makes a server listen with TLS too, and returns the port.
func listenTLS(t *testing.T, server *redistest.Server, a *authority, authClients string) string {
	t.Helper()
	ctx, control := t.Context(), server.Control()
	certFile, keyFile := a.server()
	if err := control.ConfigSet(ctx, "tls-auth-clients", authClients).Err(); err != nil {
		t.Skipf("this server was built without TLS: %v", err)
	}
	require.NoError(t, control.ConfigSet(ctx, "tls-ca-cert-file", a.file).Err())
	// Each alone would not fit the other of before.
	require.NoError(t, control.Do(ctx, "config", "set", "tls-cert-file", certFile, "tls-key-file", keyFile).Err())
	port := ""
	eventually(t, func() bool { // somebody else may take a free port meanwhile
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		port = strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
		require.NoError(t, listener.Close())
		return control.ConfigSet(ctx, "tls-port", port).Err() == nil
	}, "a port for TLS")
	return port
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	port := listenTLS(t, redistest.Start(t), ours, "no")
	lock := func(url string, flags ...string) result {
		return run(t, url, append(append([]string{"run", "x"}, flags...), "--", "echo", "ran")...)
	}
	require.Equal(t, result{0, "ran\n", ""}, lock("rediss://127.0.0.1:"+port, "--cacert", ours.file))
	for flags, text := range map[string]string{"": "unknown authority", "--cacert=" + theirs.file: "unknown authority"} {
		got := lock("rediss://127.0.0.1:"+port, strings.Fields(flags)...)
		require.Equal(t, 69, got.code)
		require.Empty(t, got.out)
		require.Contains(t, got.err, "redlatch: no TLS with redis at 127.0.0.1:"+port+": ")
		require.Contains(t, got.err, text)
	}
	got := lock("rediss://localhost:"+port, "--cacert", ours.file)
	require.Equal(t, 69, got.code)
	require.Contains(t, got.err, "localhost")
	got = lock("redis://127.0.0.1:"+port, "--connect-timeout", "100ms")
	require.Equal(t, 69, got.code, "without TLS")
}

func TestTLSWithACertificateOfTheClient(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	url := "rediss://127.0.0.1:" + listenTLS(t, redistest.Start(t), ours, "yes")
	cert, key := ours.client()
	require.Equal(t, result{0, "ran\n", ""}, run(t, url, "run", "x", "--cacert", ours.file, "--cert", cert, "--key", key, "--", "echo", "ran"))
	require.Equal(t, 0, run(t, url, "top", "--once", "--cacert", ours.file, "--cert", cert, "--key", key).code)
	otherCert, otherKey := theirs.client()
	for _, flags := range [][]string{nil, {"--cert", otherCert, "--key", otherKey}} {
		got := run(t, url, append(append([]string{"run", "x", "--cacert", ours.file}, flags...), "--", "echo", "ran")...)
		require.Equal(t, 69, got.code)
		require.Empty(t, got.out)
		require.Contains(t, got.err, "remote error: tls: ")
	}
}

func TestWrongTLSFlags(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t, "ours")
	cert, key := ours.client()
	none := filepath.Join(ours.dir, "none")
	for text, args := range map[string][]string{
		"begin the URL with rediss": {"--redis", "redis://127.0.0.1:1", "--cacert", ours.file}, "has no certificate": {"--redis", "rediss://127.0.0.1:1", "--cacert", key},
		"--cacert: open": {"--redis", "rediss://127.0.0.1:1", "--cacert", none}, "--cert and --key: open": {"--redis", "rediss://127.0.0.1:1", "--cert", cert},
		"--cert and --key: tls": {"--redis", "rediss://127.0.0.1:1", "--cert", cert, "--key", cert},
	} {
		got := run(t, "", append([]string{"ls"}, args...)...)
		require.Equal(t, 64, got.code, got.err)
		require.Contains(t, got.err, text)
		require.Equal(t, 1, strings.Count(got.err, "\n"))
	}
}

// Servers of a cluster and sentinels have several names, so TLS must not expect that of the first.
func TestTLSOfSeveralServers(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t, "ours")
	for url, name := range map[string]string{"rediss://a:1": "a", "rediss+cluster://a:1,b:2": ""} {
		f := connectFlags{url: url, cacert: ours.file, getenv: func(string) string { return "" }}
		s, err := f.parse()
		require.NoError(t, err)
		rdb, err := s.client()
		require.NoError(t, err)
		switch c := rdb.(type) {
		case *redis.Client:
			require.Equal(t, name, c.Options().TLSConfig.ServerName)
			require.NotNil(t, c.Options().TLSConfig.RootCAs)
		case *redis.ClusterClient:
			require.Equal(t, name, c.Options().TLSConfig.ServerName)
			require.NotNil(t, c.Options().TLSConfig.RootCAs)
		}
		require.NoError(t, rdb.Close())
	}
}
