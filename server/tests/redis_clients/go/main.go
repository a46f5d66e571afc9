// go-redis as it is released, against a server. Arguments: PORT [KEY].
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Time until a missing reply or message is an error.
const deadline = 30 * time.Second

var ctx = context.Background()

type post struct {
	Id, Author string
	Body       json.RawMessage
}

type page struct {
	Items []struct{ Post post }
}

type message struct {
	Type, Epoch string
	Seq         int
	Recovered   bool
	Item        struct{ Post post }
}

func done(err error) {
	if err != nil {
		log.Output(2, err.Error())
		os.Exit(1)
	}
}

func equal(what string, found, expected any) {
	if !reflect.DeepEqual(found, expected) {
		log.Output(2, fmt.Sprintf("%s: expected %v, found %v", what, expected, found))
		os.Exit(1)
	}
}

func decoded[T any](text string, err error) (value T) {
	done(err)
	done(json.Unmarshal([]byte(text), &value))
	return value
}

// subscribed subscribes to a channel, and returns `hello` with a function that returns the next message.
func subscribed(client *redis.Client, channel string) (hello message, received func() message, end func() error) {
	pubsub := client.Subscribe(ctx, channel)
	received = func() message {
		in, cancel := context.WithTimeout(ctx, deadline)
		defer cancel()
		received, err := pubsub.ReceiveMessage(in)
		done(err)
		equal("channel", received.Channel, channel)
		return decoded[message](received.Payload, nil)
	}
	return received(), received, pubsub.Close
}

func check(options redis.Options) {
	client := redis.NewClient(&options)
	defer client.Close()
	publish := func(text string) post {
		return decoded[post](client.Do(ctx, "FEED.POST", "bob", `{"text":"`+text+`"}`, "WAIT").Text())
	}
	read := func(count int) (posts []post) {
		for _, item := range decoded[page](client.Do(ctx, "FEED.GET", "ann", "COUNT", count).Text()).Items {
			posts = append(posts, item.Post)
		}
		return posts
	}

	done(client.Do(ctx, "FEED.FOLLOW", "ann", "bob").Err())
	newest := publish("hi")
	equal("newest entry", read(1), []post{newest})
	values, err := client.Do(ctx, "FEED.GET", "ann", "AS", "ARRAY").Result()
	done(err)
	_, isMap := values.(map[any]any)
	equal("map of RESP3", isMap, options.Protocol != 2)

	replies, err := client.Pipelined(ctx, func(pipeline redis.Pipeliner) error {
		for nth := range 100 {
			pipeline.Do(ctx, "FEED.POST", "bob", nth, "WAIT")
		}
		return nil
	})
	done(err)
	published := make([]post, 100)
	for nth, reply := range replies {
		post := decoded[post](reply.(*redis.Cmd).Text())
		equal("reply of a pipeline", string(post.Body), fmt.Sprint(nth))
		published[99-nth] = post
	}
	equal("posts of a pipeline", read(100), published)

	err = client.Do(ctx, "FEED.GET", "ann", "COUNT", 101).Err()
	var refused redis.Error
	equal("error of the server", errors.As(err, &refused) && strings.HasPrefix(refused.Error(), "INVALID_PARAMETER "), true)

	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for range 25 {
				equal("page read at once", read(1), published[:1])
			}
		})
	}
	readers.Wait()

	hello, received, end := subscribed(client, "feed:ann")
	first := publish("first")
	last := received()
	equal("message", last.Item.Post, first)
	done(end())
	missed := []post{publish("second"), publish("third")}
	resumed, received, end := subscribed(client, fmt.Sprintf("feed:ann %s:%d", hello.Epoch, last.Seq))
	equal("types and recovery", []any{hello.Type, hello.Recovered, resumed.Recovered}, []any{"hello", false, true})
	// Nothing else comes before a later post.
	for _, post := range append(missed, publish("fourth")) {
		equal("message after the position", received().Item.Post, post)
	}
	done(end())
}

func main() {
	log.SetFlags(log.Lshortfile)
	key := append(os.Args, "")[2]
	for _, choice := range []struct {
		name     string
		protocol int
	}{{"default protocol", 0}, {"RESP2", 2}, {"RESP3", 3}} {
		options := redis.Options{Addr: "127.0.0.1:" + os.Args[1], Password: key, Protocol: choice.protocol, ReadTimeout: deadline}
		check(options)
		if key != "" {
			options.Password = "wrong"
			stranger := redis.NewClient(&options)
			err := stranger.Ping(ctx).Err()
			equal(fmt.Sprintf("error of a wrong key: %v", err), redis.IsAuthError(err), true)
			done(stranger.Close())
		}
		fmt.Printf("go-redis %s, %s: ok\n", redis.Version(), choice.name)
	}
}
