package main

import (
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
)

const quotaBytes = 4 << 30 // a thousand nodes with ten thousand pods write more than the default

// A store of one member, for tests: it does not wait for the disk, so a power cut may lose what it holds.
func etcd() *cobra.Command {
	var dir, client, peer string
	command := &cobra.Command{Use: "etcd", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		config, err := configured(dir, client, peer)
		if err != nil {
			return err
		}
		server, err := embed.StartEtcd(config)
		if err != nil {
			return err
		}
		defer server.Close()
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
		select {
		case <-end:
			return nil
		case err = <-server.Err():
			return err
		}
	}}
	command.Flags().StringVar(&dir, "data-dir", "etcd", "the folder of the data")
	command.Flags().StringVar(&client, "client-url", "http://127.0.0.1:2379", "where clients are served")
	command.Flags().StringVar(&peer, "peer-url", "http://127.0.0.1:2380", "where other members would be")
	return command
}

func configured(dir, client, peer string) (*embed.Config, error) {
	config := embed.NewConfig()
	config.Dir = dir
	config.LogLevel = "warn"
	config.UnsafeNoFsync = true
	config.QuotaBackendBytes = quotaBytes
	clientURL, err := url.Parse(client)
	if err != nil {
		return nil, err
	}
	peerURL, err := url.Parse(peer)
	if err != nil {
		return nil, err
	}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*clientURL}, []url.URL{*clientURL}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{*peerURL}, []url.URL{*peerURL}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	return config, nil
}
