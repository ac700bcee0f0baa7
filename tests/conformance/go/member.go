// A member of a group: member BOOTSTRAP TOPIC GROUP INSTANCE PROTOCOL, see ../members/lines.py.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const session = 6 * time.Second
const heartbeat = 500 * time.Millisecond

type line struct {
	T          int64     `json:"t"`
	Event      string    `json:"event"`
	Partitions []int32   `json:"partitions,omitempty"`
	At         [][]int64 `json:"at,omitempty"`
}

var telling sync.Mutex

func tell(event string, partitions []int32, at [][]int64) {
	telling.Lock()
	defer telling.Unlock()
	text, _ := json.Marshal(line{time.Now().UnixMilli(), event, partitions, at})
	fmt.Println(string(text))
}

func changed(event string, topic string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		if len(partitions[topic]) > 0 {
			tell(event, partitions[topic], nil)
		}
	}
}

func member(bootstrap, topic, group, instance, protocol string) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(changed("assigned", topic)),
		kgo.OnPartitionsRevoked(changed("revoked", topic)),
		kgo.OnPartitionsLost(changed("revoked", topic)),
		kgo.BlockRebalanceOnPoll(),
	}
	if protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	} else {
		options = append(options, kgo.SessionTimeout(session), kgo.HeartbeatInterval(heartbeat))
	}
	if instance != "-" {
		options = append(options, kgo.InstanceID(instance))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	stopped, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for stopped.Err() == nil {
		var at [][]int64
		fetches := client.PollFetches(stopped)
		fetches.EachRecord(func(r *kgo.Record) {
			at = append(at, []int64{int64(r.Partition), r.Offset})
		})
		if len(at) > 0 {
			waiting, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			if client.CommitUncommittedOffsets(waiting) == nil {
				tell("read", nil, at)
			}
			cancel()
		}
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
	return nil
}

func runMember(arguments []string) {
	bootstrap, topic, group, instance, protocol := arguments[0], arguments[1], arguments[2], arguments[3], arguments[4]
	if err := member(bootstrap, topic, group, instance, protocol); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
