package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const gatherMax = 50 * time.Millisecond

type saramaClient struct {
	bootstrap string
	producer  sarama.SyncProducer
}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Metadata.Retry.Max = 60
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	return config
}

func newSarama(bootstrap, name string) (transactional, error) {
	config := saramaConfig()
	config.Net.MaxOpenRequests = 1
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	config.Producer.Retry.Max = 60
	config.Producer.Transaction.ID = name
	config.Producer.Transaction.Retry.Max = 200
	producer, err := sarama.NewSyncProducer([]string{bootstrap}, config)
	return &saramaClient{bootstrap, producer}, err
}

func (s *saramaClient) begin() error {
	return s.producer.BeginTxn()
}

func (s *saramaClient) send(topic string, partition int32, values []string) error {
	var messages []*sarama.ProducerMessage
	for _, one := range values {
		messages = append(messages, &sarama.ProducerMessage{
			Topic: topic, Partition: partition, Value: sarama.StringEncoder(one),
		})
	}
	err := s.producer.SendMessages(messages)
	var failed sarama.ProducerErrors
	if errors.As(err, &failed) {
		return failed[0].Err
	}
	return err
}

func (s *saramaClient) end(commits bool) error {
	if commits {
		return s.producer.CommitTxn()
	}
	return s.producer.AbortTxn()
}

func (s *saramaClient) read(topic string, partitions int, committed bool) ([]value, error) {
	config := saramaConfig()
	if committed {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer([]string{s.bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	var values []value
	for index := range int32(partitions) {
		claim, err := consumer.ConsumePartition(topic, index, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		for ended := false; !ended; {
			select {
			case message := <-claim.Messages():
				values = append(values, value{index, string(message.Value)})
				ended = string(message.Value) == end
			case <-time.After(answerMax):
				return nil, fmt.Errorf("nothing more comes of %s-%d", topic, index)
			}
		}
		if err := claim.Close(); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func (s *saramaClient) transform(source, sink, group string, partitions int) error {
	config := saramaConfig()
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	member, err := sarama.NewConsumerGroup([]string{s.bootstrap}, group, config)
	if err != nil {
		return err
	}
	defer member.Close()
	ctx, cancel := waiting()
	defer cancel()
	work := &transformer{saramaClient: s, sink: sink, group: group, left: partitions}
	for work.left > 0 && work.failed == nil && ctx.Err() == nil {
		if err := member.Consume(ctx, []string{source}, work); err != nil {
			return err
		}
	}
	return errors.Join(work.failed, ctx.Err())
}

// transformer handles each partition on a goroutine of its own; all share the one producer. Who
// returns ends the session, and the next one begins at the offsets that are committed.
type transformer struct {
	*saramaClient
	sink, group string
	sharing     sync.Mutex
	aborted     bool
	left        int
	failed      error
}

func (t *transformer) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (t *transformer) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (t *transformer) ConsumeClaim(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	for {
		taken := gathered(session, claim)
		if len(taken) == 0 {
			return nil
		}
		if ends := t.handle(session, taken); ends {
			return nil
		}
	}
}

// gathered is what comes within a moment, one record at least; none when the session ends.
func gathered(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) []*sarama.ConsumerMessage {
	var taken []*sarama.ConsumerMessage
	var over <-chan time.Time
	for len(taken) < take {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			taken = append(taken, message)
			over = time.After(gatherMax)
		case <-over:
			return taken
		case <-session.Context().Done():
			return nil
		}
	}
	return taken
}

// handle makes one transaction; it says whether the session is to end.
func (t *transformer) handle(
	session sarama.ConsumerGroupSession, taken []*sarama.ConsumerMessage,
) bool {
	t.sharing.Lock()
	defer t.sharing.Unlock()
	if session.Context().Err() != nil || t.failed != nil {
		return true
	}
	ended, err := t.transaction(taken)
	t.failed = err
	t.left -= ended
	wasAborted := !t.aborted
	t.aborted = true
	return wasAborted || t.left == 0 || err != nil
}

func (t *transformer) transaction(taken []*sarama.ConsumerMessage) (int, error) {
	var values, transformed []string
	for _, message := range taken {
		values = append(values, string(message.Value))
		transformed = append(transformed, string(message.Value)+"'")
	}
	if err := t.begin(); err != nil {
		return 0, err
	}
	if err := t.send(t.sink, 0, transformed); err != nil {
		return 0, err
	}
	last := taken[len(taken)-1]
	offset := &sarama.PartitionOffsetMetadata{Partition: last.Partition, Offset: last.Offset + 1}
	offsets := map[string][]*sarama.PartitionOffsetMetadata{last.Topic: {offset}}
	if err := t.producer.AddOffsetsToTxn(offsets, t.group); err != nil {
		return 0, err
	}
	if !t.aborted {
		return 0, t.end(false)
	}
	return ends(values), t.end(true)
}
