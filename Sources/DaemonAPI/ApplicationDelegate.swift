// Calling a program's org.pttd.Delegate1: one call at a time, in order, with a time limit.
import DBus
import FoundationEssentials
import Logging
import PTTBus
import PushToTalkCore
import Reactor

/// Why a program's delegate gave no answer.
public enum DelegateFailure: Error, Hashable, Sendable, CustomStringConvertible {
    /// The program has left the bus or has unregistered, or does not read its calls any more.
    case gone
    /// No answer came within `PTTBusLimits.delegateAnswer`, or `serviceUpdateAnswer` to a service update. The program may still act on the call.
    case timedOut
    /// It answered with an error, or with something that means nothing; in words.
    case failed(String)

    /// What happened, for a log.
    public var description: String {
        switch self {
        case .gone: "the program has left the bus"
        case .timedOut: "the program did not answer in time"
        case .failed(let words): words
        }
    }
}

/// The daemon's side of a program's `org.pttd.Delegate1`.
///
/// Calls are made in the order of `tell`, each when the one before has been answered or has timed out; only the answer to a service
/// update is not waited for. A program that lets
/// `PTTBusLimits.delegateQueue` calls wait does not read them any more, and counts as gone. It lives on the bus's loop.
public actor ApplicationDelegate {
    /// What came of a call.
    public typealias Outcome = Result<DelegateAnswer, DelegateFailure>

    /// The loop it lives on.
    public nonisolated let loop: EventLoop
    /// The loop, as the actor's executor.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    private struct Waiting {
        let call: DelegateCall
        let answered: (@Sendable (Outcome) -> Void)?
    }

    private let bus: DBusConnection
    private let busName: String
    private let path: DBusObjectPath
    private let limit: Duration
    private let logger: Logger
    private let overflowed: @Sendable () -> Void
    private var queue: [Waiting] = []
    /// Service updates that the program has not completed. They do not hold up others, and count all the same.
    private var updates = 0
    private var isCalling = false
    private var isGone = false

    init(
        bus: DBusConnection, busName: String, path: DBusObjectPath, limit: Duration, logger: Logger,
        overflowed: @escaping @Sendable () -> Void
    ) {
        self.bus = bus
        loop = bus.loop
        self.busName = busName
        self.path = path
        self.limit = limit
        self.logger = logger
        self.overflowed = overflowed
    }

    /// Makes a call when all earlier ones are over.
    ///
    /// - Parameter answered: Called once on the loop, also when the program is gone.
    public func tell(_ call: DelegateCall, answered: (@Sendable (Outcome) -> Void)? = nil) {
        guard !isGone else {
            answered?(.failure(.gone))
            return
        }
        guard queue.count + updates < PTTBusLimits.delegateQueue else {
            logger.error(
                "program treated as gone: too many calls of its delegate are pending",
                metadata: ["program": "\(busName)", "waiting": "\(queue.count + updates)"])
            end()
            answered?(.failure(.gone))
            overflowed()
            return
        }
        queue.append(Waiting(call: call, answered: answered))
        guard !isCalling else { return }
        isCalling = true
        Task { await self.callAll() }
    }

    /// Asks what to do about a push.
    ///
    /// - Parameter payload: A JSON object.
    public func incomingPush(_ channel: UUID, payload: String) async throws(DelegateFailure) -> PTPushResult {
        guard case .pushResult(let result) = try await ask(.incomingPush(channel, payload: payload)) else {
            throw .failed("the answer is not a push result")
        }
        return result
    }

    /// Asks how to show a restored channel.
    public func channelDescriptor(_ channel: UUID) async throws(DelegateFailure) -> PTChannelDescriptor {
        guard case .descriptor(let descriptor) = try await ask(.channelDescriptor(channel)) else {
            throw .failed("the answer is not a descriptor")
        }
        return descriptor
    }

    /// Makes a call when all earlier ones are over, and waits for its answer.
    public func ask(_ call: DelegateCall) async throws(DelegateFailure) -> DelegateAnswer {
        let outcome: Outcome = await withCheckedContinuation { continuation in
            tell(call) { continuation.resume(returning: $0) }
        }
        return try outcome.get()
    }

    /// Makes no calls any more; those that wait are answered with `.gone`.
    func end() {
        isGone = true
        let waiting = queue
        queue = []
        for entry in waiting { entry.answered?(.failure(.gone)) }
    }

    private func callAll() async {
        while !queue.isEmpty {
            let next = queue.removeFirst()
            if case .incomingServiceUpdatePush = next.call {
                // It is answered when the program has done its work, which other calls do not wait for.
                updates += 1
                Task.immediate {
                    await self.carryOut(next)
                    self.updates -= 1
                }
            } else {
                await carryOut(next)
            }
        }
        isCalling = false
    }

    private func carryOut(_ next: Waiting) async {
        let outcome = await make(next.call)
        if case .failure(let failure) = outcome, !isGone {
            logger.warning(
                "delegate call failed",
                metadata: ["program": "\(busName)", "method": "\(next.call.member)", "why": "\(failure)"])
        }
        next.answered?(outcome)
    }

    private func make(_ call: DelegateCall) async -> Outcome {
        // A service update is the program's to do, not only to answer.
        var timeout = limit
        if case .incomingServiceUpdatePush = call { timeout = max(limit, PTTBusLimits.serviceUpdateAnswer) }
        let values: [DBusValue]
        do throws(DBusError) {
            values = try await bus.call(
                destination: busName, path: path, interface: PTTBus.delegateInterface, method: call.member,
                arguments: call.arguments, timeout: timeout, startsService: false)
        } catch {
            switch error {
            case .timedOut: return .failure(.timedOut)
            case .disconnected: return .failure(.gone)
            case .remote(let name, _) where name.hasSuffix(".ServiceUnknown") || name.hasSuffix(".NameHasNoOwner"):
                return .failure(.gone)
            case .remote(let name, _) where name == "org.freedesktop.DBus.Error.NoReply":
                return .failure(.gone)
            default: return .failure(.failed("\(error)"))
            }
        }
        // A method that returns nothing may answer what it likes.
        do throws(DBusErrorReply) { return .success(try DelegateAnswer(values, to: call)) } catch {
            return .failure(.failed(error.message))
        }
    }
}
