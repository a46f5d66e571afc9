// A client that oapi-codegen has generated, against a real server: typed answers and typed refusals.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"tidewire.example/generated/api"
)

func main() {
	log.SetFlags(log.Lshortfile)
	ctx, url, keyed := context.Background(), os.Args[1], os.Args[2]
	client, err := api.NewClientWithResponses(url)
	done(err)

	// Nil in place of the parameters, of which none is needed.
	followed, err := client.FollowWithResponse(ctx, "ann", "bob", nil, api.FollowOptions{Backfill: of(5)})
	done(err)
	check(followed.JSON201 != nil && followed.JSON201.Created, string(followed.Body))

	published := time.Now().Add(-time.Hour).UTC().Truncate(time.Microsecond)
	wait := api.PublishParamsWaitDelivered
	answer, err := client.PublishWithResponse(ctx, &api.PublishParams{Wait: &wait}, api.NewPost{
		Author: "bob", Body: map[string]string{"text": "hello"}, Tags: &[]api.TagName{"rust"}, PublishedAt: &published,
	})
	done(err)
	post := answer.JSON201
	check(post != nil && post.Author == "bob" && post.PublishedAt.Equal(published), string(answer.Body))
	read, err := client.ReadPostWithResponse(ctx, post.Id, nil)
	done(err)
	check(read.JSON200.Id == post.Id && read.JSON200.Body.(map[string]any)["text"] == "hello", string(read.Body))
	tag := read.HTTPResponse.Header.Get("ETag")
	same, err := client.ReadPostWithResponse(ctx, post.Id, &api.ReadPostParams{IfNoneMatch: &tag})
	done(err)
	check(same.StatusCode() == 304 && same.JSON200 == nil, same.Status())

	feed, err := client.ReadFeedWithResponse(ctx, "ann", nil)
	done(err)
	check(len(feed.JSON200.Items) == 1 && feed.JSON200.Items[0].Via[0] == "bob" && feed.JSON200.Next == nil, string(feed.Body))
	fields := api.ReadFeedParamsFieldsIds
	short, err := client.ReadFeedWithResponse(ctx, "ann", &api.ReadFeedParams{Limit: of(5), Fields: &fields})
	done(err)
	check(short.JSON200.Items[0].Post.Body == nil, string(short.Body))
	marker, err := client.MarkWithResponse(ctx, "ann", nil, api.Mark{Cursor: *feed.JSON200.Newest})
	done(err)
	check(marker.JSON200.Unread == 0 && marker.JSON200.Complete, string(marker.Body))

	waitForMany := api.PublishManyParamsWaitDelivered
	many, err := client.PublishManyWithResponse(ctx, &api.PublishManyParams{Wait: &waitForMany}, api.PostsRequest{Posts: []api.NewPost{
		{Author: "bob", Body: 1, Id: of(api.PostId("77"))}, {Author: "tag:rust", Body: 2},
	}})
	done(err)
	first, err := many.JSON200.Posts[0].AsPublishedPost()
	done(err)
	second, err := many.JSON200.Posts[1].AsRefusedPost()
	done(err)
	check(first.Created && first.Post.Id == "77" && second.Problem.Code == "not_a_user", string(many.Body))
	feeds, err := client.ReadFeedsWithResponse(ctx, api.FeedsRequest{Users: []api.SourceId{"ann"}})
	done(err)
	page, err := feeds.JSON200.Feeds[0].AsFeedOfUser()
	done(err)
	check(page.User == "ann" && len(page.Items) == 2, string(feeds.Body))

	external := api.ExternalId("urn:x:1")
	named, err := client.PublishWithResponse(ctx, nil, api.NewPost{Author: "dan", Body: 4, ExternalId: &external})
	done(err)
	byName, err := client.ReadPostWithResponse(ctx, "ext:urn:x:1", nil)
	done(err)
	check(byName.JSON200.Id == named.JSON201.Id && *byName.JSON200.ExternalId == external, string(byName.Body))

	_, err = client.MuteWithResponse(ctx, "ann", "bob", nil, api.MuteJSONRequestBody{})
	done(err)
	explained, err := client.ExplainWithResponse(ctx, "ann", "77")
	done(err)
	check(!explained.JSON200.Shown && len(explained.JSON200.Blockers) == 1, string(explained.Body))
	replies := api.RulesPatchRepliesAll
	rules, err := client.ChangeRulesWithResponse(ctx, "ann", nil, api.RulesPatch{Replies: &replies})
	done(err)
	check(rules.JSON200.Replies == api.RulesRepliesAll && rules.JSON200.PerSourceMax == nil, string(rules.Body))
	types := "published"
	changes, err := client.ReadChangesWithResponse(ctx, &api.ReadChangesParams{After: of(0), Types: &types})
	done(err)
	check(strings.Count(string(changes.Body), `"type":"published"`) == 3, string(changes.Body))
	stats, err := client.ReadStatsWithResponse(ctx, nil)
	done(err)
	check(stats.JSON200.Posts == 3, string(stats.Body))
	deleted, err := client.DeletePostWithResponse(ctx, "77", nil)
	done(err)
	check(deleted.StatusCode() == http.StatusNoContent, string(deleted.Body))

	unknown, err := client.ReadPostWithResponse(ctx, "77", nil)
	done(err)
	refused(unknown.ApplicationproblemJSON404, http.StatusNotFound, "unknown_post")
	wrong, err := client.ReadFeedWithResponse(ctx, "ann", &api.ReadFeedParams{Limit: of(101)})
	done(err)
	refused(wrong.ApplicationproblemJSON400, http.StatusBadRequest, "invalid_parameter")
	check(*wrong.ApplicationproblemJSON400.Field == "limit", string(wrong.Body))
	taken, err := client.PublishWithResponse(ctx, nil, api.NewPost{Author: "bob", Body: 3, Id: &post.Id})
	done(err)
	refused(taken.ApplicationproblemJSON409, http.StatusConflict, "post_id_taken")
	oneself, err := client.FollowWithResponse(ctx, "ann", "ann", nil, api.FollowOptions{})
	done(err)
	refused(oneself.ApplicationproblemJSON422, http.StatusUnprocessableEntity, "self_follow")
	alone, err := client.ReadClusterWithResponse(ctx, nil)
	done(err)
	refused(alone.ApplicationproblemJSON404, http.StatusNotFound, "no_cluster")
	guarded, err := api.NewClientWithResponses(keyed)
	done(err)
	denied, err := guarded.ReadFeedWithResponse(ctx, "ann", nil)
	done(err)
	refused(denied.ApplicationproblemJSON401, http.StatusUnauthorized, "unauthenticated")
	fmt.Println("the generated Go client: typed answers and refusals")
}

func of[T any](value T) *T { return &value }

func done(err error) {
	if err != nil {
		log.Output(2, err.Error())
		os.Exit(1)
	}
}

func check(good bool, body string) {
	if !good {
		log.Output(2, "unexpected: "+body)
		os.Exit(1)
	}
}

func refused(problem *api.Problem, status int, code string) {
	if problem == nil || problem.Status != status || problem.Code != code {
		log.Output(2, fmt.Sprintf("not %d %s: %+v", status, code, problem))
		os.Exit(1)
	}
}
