// An unchanged franz-go writes numbers and reads them back: every record that was acknowledged, once, in order.
//
// main SERVERS TOPIC write FROM COUNT: an idempotent producer with acks=all; prints "PARTITION OFFSET NUMBER" for each
// record that was acknowledged. main SERVERS TOPIC read COUNT: all partitions from the beginning; prints the same.
// main ledger SERVERS TOPIC NAME PARTITIONS: writes until its input ends (ledger.go).
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 60 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(words []string) error {
	if words[0] == "ledger" {
		partitions, err := strconv.Atoi(words[4])
		if err != nil {
			return err
		}
		return ledger(kgo.SeedBrokers(strings.Split(words[1], ",")...), words[2], words[3], partitions)
	}
	numbers := make([]int, 0, 2)
	for _, word := range words[3:] {
		number, err := strconv.Atoi(word)
		if err != nil {
			return err
		}
		numbers = append(numbers, number)
	}
	within, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	servers := kgo.SeedBrokers(strings.Split(words[0], ",")...)
	if words[2] == "write" {
		return write(within, servers, words[1], numbers[0], numbers[1])
	}
	return read(within, servers, words[1], numbers[0])
}

func write(within context.Context, servers kgo.Opt, topic string, from, count int) error {
	client, err := kgo.NewClient(servers, kgo.DefaultProduceTopic(topic), kgo.RequiredAcks(kgo.AllISRAcks()))
	if err != nil {
		return err
	}
	defer client.Close()
	refused := make(chan error, count)
	for number := from; number < from+count; number++ {
		record := kgo.StringRecord(strconv.Itoa(number))
		client.Produce(within, record, func(record *kgo.Record, err error) {
			if err != nil {
				refused <- err
				return
			}
			fmt.Println(record.Partition, record.Offset, string(record.Value))
		})
		if number%50 == 0 {
			time.Sleep(10 * time.Millisecond) // not all in one batch
		}
	}
	if err := client.Flush(within); err != nil {
		return err
	}
	select {
	case err := <-refused:
		return err
	default:
		return nil
	}
}

func read(within context.Context, servers kgo.Opt, topic string, count int) error {
	client, err := kgo.NewClient(servers, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer client.Close()
	for count > 0 {
		fetches := client.PollFetches(within)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Println(record.Partition, record.Offset, string(record.Value))
			count--
		})
	}
	return nil
}
