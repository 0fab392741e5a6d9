// A mailbox through which other threads pass items to one loop, many times a second.
import CLinux
import Glibc
import Synchronization

/// Items on their way to an event loop, from any thread. Those of one thread arrive in order; once its arrays have grown, nothing is
/// allocated. The loop is woken once for all that waits.
public final class Mailbox<Item: Sendable>: @unchecked Sendable {
    /// Items beyond which those that may be lost are.
    public static var bound: Int { 32_768 }
    /// Capacity that stays allocated for the next items after a burst of them.
    private static var keptCapacity: Int { 4_096 }

    private let waiting = Mutex<[Item]>([])
    private let descriptor: Int32
    private let posted = Atomic<UInt64>(0)
    private let handled = Atomic<UInt64>(0)
    // The loop's from here on.
    private var taken: [Item] = []
    private var watch: EventLoop.Watch?

    /// A mailbox that nobody empties yet.
    ///
    /// - Throws: `SystemError` when the process has no descriptor left.
    public init() throws(SystemError) {
        descriptor = eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK))
        guard descriptor >= 0 else { throw SystemError("eventfd") }
    }

    deinit { close(descriptor) }

    /// Items that were handed over, from any thread.
    public var postedCount: UInt64 { posted.load(ordering: .acquiring) }

    /// How many of them the loop is done with.
    public var handledCount: UInt64 { handled.load(ordering: .acquiring) }

    /// Has `loop` take what comes, and what waits already. Called on it.
    public func open(on loop: EventLoop, _ handler: @escaping (Item) -> Void) throws(SystemError) {
        watch = try loop.watch(descriptor, for: .readable) { [unowned self] _ in
            var count: UInt64 = 0
            _ = read(descriptor, &count, 8)
            takeAll(handler)
        }
    }

    /// Takes nothing any more. Called on the loop.
    public func shut() {
        watch?.cancel()
        watch = nil
    }

    /// Hands `item` over.
    ///
    /// - Parameter mayBeLost: Whether it is left out when `bound` items wait already.
    /// - Returns: False when it was left out.
    @discardableResult
    public func post(_ item: Item, mayBeLost: Bool = false) -> Bool {
        let place = waiting.withLock { items in
            guard !mayBeLost || items.count < Self.bound else { return -1 }
            items.append(item)
            posted.add(1, ordering: .acquiringAndReleasing)
            return items.count - 1
        }
        if place == 0 {
            var one: UInt64 = 1
            _ = write(descriptor, &one, 8)
        }
        return place >= 0
    }

    private func takeAll(_ handler: (Item) -> Void) {
        var items = taken
        taken = []
        waiting.withLock { swap(&$0, &items) }
        for index in items.indices { handler(items[index]) }
        handled.add(UInt64(items.count), ordering: .acquiringAndReleasing)
        if items.capacity > Self.keptCapacity {
            items = []
        } else {
            items.removeAll(keepingCapacity: true)
        }
        taken = items
    }
}
