package main

import (
	"github.com/twmb/franz-go/pkg/kgo"
)

type franz struct {
	bootstrap string
	name      string
	client    *kgo.Client
}

func newFranz(bootstrap, name string) (transactional, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.TransactionalID(name),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RecordDeliveryTimeout(answerMax),
	)
	if err != nil {
		return nil, err
	}
	ctx, cancel := waiting()
	defer cancel()
	_, _, err = client.ProducerID(ctx)
	return &franz{bootstrap, name, client}, err
}

func (f *franz) begin() error {
	return f.client.BeginTransaction()
}

func records(topic string, partition int32, values []string) []*kgo.Record {
	var made []*kgo.Record
	for _, one := range values {
		made = append(made, &kgo.Record{Topic: topic, Partition: partition, Value: []byte(one)})
	}
	return made
}

func (f *franz) send(topic string, partition int32, values []string) error {
	ctx, cancel := waiting()
	defer cancel()
	return f.client.ProduceSync(ctx, records(topic, partition, values)...).FirstErr()
}

func (f *franz) end(commits bool) error {
	ctx, cancel := waiting()
	defer cancel()
	return f.client.EndTransaction(ctx, kgo.TransactionEndTry(commits))
}

func (f *franz) read(topic string, partitions int, committed bool) ([]value, error) {
	starts := map[int32]kgo.Offset{}
	for index := range partitions {
		starts[int32(index)] = kgo.NewOffset().AtStart()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(f.bootstrap),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: starts}),
		kgo.FetchIsolationLevel(isolation(committed)),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := waiting()
	defer cancel()
	var values []value
	for ended := 0; ended < partitions; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			values = append(values, value{r.Partition, string(r.Value)})
			ended += ends([]string{string(r.Value)})
		})
	}
	return values, nil
}

func isolation(committed bool) kgo.IsolationLevel {
	if committed {
		return kgo.ReadCommitted()
	}
	return kgo.ReadUncommitted()
}

// transform has a session, which is a producer and a member of the group in one: its id is another.
func (f *franz) transform(source, sink, group string, partitions int) error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(f.bootstrap),
		kgo.TransactionalID(f.name+"-session"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RequireStableFetchOffsets(),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	ctx, cancel := waiting()
	defer cancel()
	aborted := false
	for ended := 0; ended < partitions; {
		fetches := session.PollRecords(ctx, take)
		if err := fetches.Err(); err != nil {
			return err
		}
		var values, transformed []string
		fetches.EachRecord(func(r *kgo.Record) {
			values = append(values, string(r.Value))
			transformed = append(transformed, string(r.Value)+"'")
		})
		if err := session.Begin(); err != nil {
			return err
		}
		err := session.ProduceSync(ctx, records(sink, 0, transformed)...).FirstErr()
		if err != nil {
			return err
		}
		committed, err := session.End(ctx, kgo.TransactionEndTry(aborted))
		if err != nil {
			return err
		}
		aborted = true
		if committed {
			ended += ends(values)
		}
	}
	return nil
}
