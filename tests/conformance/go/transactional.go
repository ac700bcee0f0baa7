// Transactional clients: franz-go|sarama BOOTSTRAP TRANSACTIONAL_ID, see ../transactional/commands.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

const end = "end"
const take = 20
const answerMax = 40 * time.Second

// value is a partition and a text.
type value [2]any

type transactional interface {
	begin() error
	send(topic string, partition int32, values []string) error
	end(commits bool) error
	read(topic string, partitions int, committed bool) ([]value, error)
	transform(source, sink, group string, partitions int) error
}

var transactionals = map[string]func(bootstrap, name string) (transactional, error){
	"franz-go": newFranz,
	"sarama":   newSarama,
}

func do(client transactional, words []string) ([]value, error) {
	rest := words[1:]
	last, _ := strconv.Atoi(words[len(words)-1])
	switch words[0] {
	case "begin":
		return nil, client.begin()
	case "send":
		partition, err := strconv.Atoi(rest[1])
		if err != nil {
			return nil, err
		}
		return nil, client.send(rest[0], int32(partition), rest[2:])
	case "commit", "abort":
		return nil, client.end(words[0] == "commit")
	case "read":
		return client.read(rest[1], last, rest[0] == "committed")
	case "transform":
		return nil, client.transform(rest[0], rest[1], rest[2], last)
	}
	return nil, fmt.Errorf("no such command: %v", words)
}

func answer(values []value, err error) {
	said := map[string]any{"error": "", "values": values}
	if err != nil {
		said["error"] = fmt.Sprintf("%T: %v", err, err)
	}
	if values == nil {
		said["values"] = []value{}
	}
	text, _ := json.Marshal(said)
	fmt.Println(string(text))
}

func runTransactional(arguments []string) {
	client, err := transactionals[arguments[0]](arguments[1], arguments[2])
	answer(nil, err)
	if err != nil {
		return
	}
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		answer(do(client, strings.Fields(input.Text())))
	}
}

func ends(values []string) int {
	count := 0
	for _, one := range values {
		if one == end {
			count++
		}
	}
	return count
}

func waiting() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), answerMax)
}
