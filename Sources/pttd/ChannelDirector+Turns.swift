// Keeps the requests of one caller in order, although some of them wait for information from the bus.
import DaemonAPI
import PushToTalkCore

extension ChannelDirector {
    /// Requests of one caller that wait for an earlier one.
    private static let waitingMax = 64

    /// Waits for the caller's earlier requests; without a pause when there are none.
    ///
    /// - Parameter asks: Whether it matters if the caller, when it is a registered program, is in the foreground.
    /// - Returns: Whether it is, or true where it does not matter.
    /// - Throws: When too many wait, or when a begin or a join was asked for by a program that is not registered any more.
    func inTurn(_ caller: BusCaller, asks: Bool) async throws(PTChannelError) -> Bool {
        let name = caller.busName
        let delegate = delegates[name]
        if let waiting = turns[name] {
            guard waiting.count < Self.waitingMax else {
                throw PTChannelError(.unknown, explanation: "this caller has too many pending requests; try again")
            }
            await withCheckedContinuation { turns[name]?.append($0) }
        } else {
            turns[name] = []
        }
        var isForeground = true
        if asks, caller.application != nil, let dependencies { isForeground = await dependencies.isForeground(name) }
        passTurn(of: name)
        guard asks, caller.application != nil else { return isForeground }
        guard let delegate, delegates[name] === delegate else {
            throw PTChannelError(.unknown, explanation: "the program has unregistered or left the bus")
        }
        return isForeground
    }

    /// Lets the caller's next request continue after the current one.
    private func passTurn(of name: String) {
        if turns[name]?.isEmpty == false { turns[name]?.removeFirst().resume() } else { turns[name] = nil }
    }
}
