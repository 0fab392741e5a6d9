// The thread on which NIO serves all WebSockets of the process. It begins with the first connection.
import NIOCore
import NIOPosix

enum WebSocketThread {
    /// Made when it is used first: where everything goes over QUIC, there is no such thread.
    static let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
}
