// franz-go: produce|consume BOOTSTRAP TOPIC RECORDS. The records and digests are those of
// ../records.py.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const partitions = 3
const silenceMax = 30 * time.Second

var codecs = []struct {
	name  string
	codec kgo.CompressionCodec
}{
	{"none", kgo.NoCompression()},
	{"gzip", kgo.GzipCompression()},
	{"snappy", kgo.SnappyCompression()},
	{"lz4", kgo.Lz4Compression()},
	{"zstd", kgo.ZstdCompression()},
}

func record(topic, codec string, i int) *kgo.Record {
	number := strconv.Itoa(i)
	sum := sha256.Sum256([]byte(number))
	headers := []kgo.RecordHeader{
		{Key: "codec", Value: []byte(codec)},
		{Key: "n", Value: []byte(number)},
	}
	if i%5 == 0 {
		headers = append(headers, kgo.RecordHeader{Key: "n", Value: []byte{}})
	}
	return &kgo.Record{
		Topic:     topic,
		Partition: int32(i % partitions),
		Key:       []byte("key-" + number),
		Value:     bytes.Repeat(sum[:], i%32+1),
		Headers:   headers,
	}
}

func produce(bootstrap, topic string, count int) error {
	for number, codec := range codecs {
		client, err := kgo.NewClient(
			kgo.SeedBrokers(bootstrap),
			kgo.ProducerBatchCompression(codec.codec),
			kgo.RecordPartitioner(kgo.ManualPartitioner()),
		)
		if err != nil {
			return err
		}
		var batch []*kgo.Record
		for i := 0; i < count; i++ {
			if 5*i/count == number {
				batch = append(batch, record(topic, codec.name, i))
			}
		}
		err = client.ProduceSync(context.Background(), batch...).FirstErr()
		client.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func sized(h hash.Hash, data []byte) {
	if data == nil {
		binary.Write(h, binary.BigEndian, int32(-1))
		return
	}
	binary.Write(h, binary.BigEndian, int32(len(data)))
	h.Write(data)
}

func add(h hash.Hash, r *kgo.Record) {
	binary.Write(h, binary.BigEndian, r.Offset)
	sized(h, r.Key)
	sized(h, r.Value)
	binary.Write(h, binary.BigEndian, int32(len(r.Headers)))
	for _, header := range r.Headers {
		sized(h, []byte(header.Key))
		sized(h, header.Value)
	}
}

func consume(bootstrap, topic string, count int) ([]string, error) {
	starts := map[int32]kgo.Offset{}
	digests := make([]hash.Hash, partitions)
	for p := range digests {
		starts[int32(p)] = kgo.NewOffset().At(0)
		digests[p] = sha256.New()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: starts}),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for read := 0; read < count; {
		ctx, cancel := context.WithTimeout(context.Background(), silenceMax)
		fetches := client.PollFetches(ctx)
		cancel()
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("after %d of %d records: %w", read, count, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			add(digests[r.Partition], r)
			read++
		})
	}
	var texts []string
	for _, digest := range digests {
		texts = append(texts, hex.EncodeToString(digest.Sum(nil)))
	}
	return texts, nil
}

func run() error {
	verb, bootstrap, topic := os.Args[1], os.Args[2], os.Args[3]
	count, err := strconv.Atoi(os.Args[4])
	if err != nil {
		return err
	}
	digests := []string{}
	if verb == "produce" {
		err = produce(bootstrap, topic, count)
	} else {
		digests, err = consume(bootstrap, topic, count)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"records": count, "digests": digests})
}

func main() {
	if os.Args[1] == "member" {
		runMember(os.Args[2:])
		return
	}
	if os.Args[1] == "transactional" {
		runTransactional(os.Args[2:])
		return
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
