// A Socket.IO server like that of an application: a room for each author, an event for each post.
// Followers join with `follow`, publishers emit `publish`. Argument: the port.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { Server } from 'socket.io';

const http = createServer();
// Only WebSocket clients connect, and no page loads the client from here.
const io = new Server(http, { transports: ['websocket'], serveClient: false });

io.on('connection', (socket) => {
  socket.on('follow', (author, done) => {
    socket.join(author);
    done();
  });
  socket.on('publish', (author, body) => io.to(author).emit('post', body));
});

http.listen(Number(process.argv[2]), '127.0.0.1', () => {
  const { version } = createRequire(import.meta.url)('socket.io/package.json');
  console.log(`socket.io ${version}, Node ${process.version}`);
});
