// The actions of accessories' controls, other than talking.
import Accessories
import Bridge
import ChannelService
import DaemonAPI
import Logging
import PushToTalkCore
import Vocabulary

extension ChannelStep {
    /// The step that a caller on the bus asks for.
    init(_ choice: ChannelChoice) {
        self =
            switch choice {
            case .up: .up
            case .down: .down
            case .name(let name): .name(name)
            }
    }
}

extension ChannelDirector {
    /// Carries out a control's action other than talking. A tone reports a failure. Runs on the loop.
    func controlWants(_ action: ControlAction, _ source: AccessorySource) {
        switch action {
        case .channelUp: changeByPress(.up)
        case .channelDown: changeByPress(.down)
        case .nearbyNext: joinNextNearby()
        case .replayLast: replayByPress()
        case .command(let words): run(words, source)
        case .none, .transmit, .emergency: break
        }
    }

    private func changeByPress(_ step: ChannelStep) {
        if let refusal = self.step(.change(step, isPress: true)) { refuse(refusal) }
    }

    private func joinNextNearby() {
        dependencies?.joinNextNearby { [weak self] refusal in self?.assumeIsolated { $0.refuse(refusal) } }
    }

    private func replayByPress() {
        guard let seat else { return refuse(Self.noChannel) }
        let refusal: PTChannelError? = channel.assumeIsolated { service in
            do throws(PTChannelError) { try service.replayLast(channelUUID: seat.uuid) } catch { return error }
            return nil
        }
        // The service has sounded the tone.
        if let refusal { dependencies?.refused(refusal) }
    }

    private func run(_ words: [String], _ source: AccessorySource) {
        guard let commands = dependencies?.commands else {
            let explanation =
                "\(source) is bound to a command, and only a user's own pttd, on the session bus, runs commands; bind it to another action"
            logger.warning("command not run", metadata: ["why": "\(explanation)"])
            return refuse(PTChannelError(.deviceManagementRestriction, explanation: explanation))
        }
        let failure: CommandError? = commands.assumeIsolated { runner in
            do throws(CommandError) { try runner.run(words, for: source) } catch { return error }
            return nil
        }
        if let failure {
            logger.warning("command not run", metadata: ["source": "\(source)", "why": "\(failure)"])
            refuse(PTChannelError(.unknown, explanation: "\(failure)"))
        }
    }

    private func refuse(_ error: PTChannelError) {
        channel.assumeIsolated { $0.signal(.denied) }
        dependencies?.refused(error)
    }
}
