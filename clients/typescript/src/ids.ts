/**
 * An id for a post: 64 random bits, as a decimal number. A post with an id is published once, however often it is sent.
 * If another post has the same id by chance, the server refuses it (`post_id_taken`).
 */
export function newPostId(): string {
  return crypto.getRandomValues(new BigUint64Array(1))[0]!.toString();
}
