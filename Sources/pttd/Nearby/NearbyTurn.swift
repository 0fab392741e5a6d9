// The control "next channel nearby" of an accessory, which works without a list on a screen.
import DaemonAPI
import FoundationEssentials
import Logging
import MonotonicTime
import Nearby
import PTTBus
import PushToTalkCore
import Reactor
import RelayProtocol

/// Which channel a press joins, and for how long channels are looked for after it.
struct NearbyTurn: Sendable {
    /// So long after a press channels are looked for, so that the next press knows them.
    static let browsingTime: Duration = .seconds(15)
    /// So long the first press waits for the channels that are there.
    static let findingTime: Duration = .seconds(2)
    /// Channels in the network's cache are found within a moment. The list counts as complete this long after the first
    /// one.
    static let gatheringTime: Duration = .milliseconds(150)

    /// Where the turn is: the channel that was joined last, by this machine's or the user's choice.
    ///
    /// - Parameters:
    ///   - channels: What is nearby, in the order of the list.
    ///   - active: The channel that this machine is on.
    /// - Returns: nil when there is nothing else to join.
    static func next(after active: UUID?, among channels: [NearbyChannel]) -> NearbyChannel? {
        // A press cannot say a code, nor wait for somebody's yes.
        let open = channels.filter { $0.announcement.admission == .open || $0.isOwn }
        guard let index = open.firstIndex(where: { $0.announcement.channel.uuid == active }) else { return open.first }
        return open.count > 1 ? open[(index + 1) % open.count] : nil
    }
}

extension NearbyChannels {
    /// A control is pressed that joins the next channel nearby. On the loop.
    ///
    /// - Parameter refused: Told why no other channel is joined.
    func joinNextByPress(refused: @escaping @Sendable (PTChannelError) -> Void) {
        // A second press while the first one is under way changes nothing.
        guard !isTurning else { return }
        isTurning = true
        Task {
            do throws(PTChannelError) {
                let channel = try await joinNext()
                logger.info("a press joins the next channel nearby", metadata: ["channel": "\(channel)"])
            } catch {
                refused(error)
            }
            isTurning = false
        }
    }

    private func joinNext() async throws(PTChannelError) -> String {
        await browseForPress()
        let began = Instant.now
        while found.isEmpty, .now - began < NearbyTurn.findingTime { await loop.pause(for: .milliseconds(20)) }
        if .now - began > .milliseconds(1) { await loop.pause(for: NearbyTurn.gatheringTime) }
        guard let next = NearbyTurn.next(after: await director.activeJoined, among: found) else {
            throw PTChannelError(
                .channelNotFound,
                explanation: problem.isEmpty ? "there is no other channel nearby that a press can join" : problem)
        }
        _ = try await joinChannel(NearbyChannelDescription.id(next), code: nil, by: BusCaller(busName: ""))
        return next.announcement.name.text
    }

    private func browseForPress() async {
        pressTimer?.cancel()
        pressTimer = loop.schedule(after: NearbyTurn.browsingTime) { [weak self] in
            self?.assumeIsolated { channels in
                channels.pressTimer = nil
                Task { await channels.browse() }
            }
        }
        await browse()
    }
}

extension EventLoop {
    /// Returns on any thread after `duration`.
    func pause(for duration: Duration) async {
        await withCheckedContinuation { done in
            execute { [self] in schedule(after: duration) { done.resume() } }
        }
    }
}
