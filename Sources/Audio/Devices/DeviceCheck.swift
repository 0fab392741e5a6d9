// Checks whether a device exists, without using it.
import CALSA

extension AudioDevice {
    /// What a device is wanted for.
    public enum Use: Sendable {
        /// As a microphone.
        case microphone
        /// As a speaker.
        case speaker
    }

    /// The problem with the device, as far as opening and closing it shows. Nothing is captured or played, and no file
    /// is written. A device in use by another program counts as present. It may take as long as a sound server takes to
    /// answer.
    public func problem(asA use: Use) -> AudioError? {
        do throws(AudioFault) {
            switch (self, use) {
            case (.alsa(let name), .microphone): try ALSAPCM(name: name, stream: SND_PCM_STREAM_CAPTURE).close()
            case (.alsa(let name), .speaker): try ALSAPCM(name: name, stream: SND_PCM_STREAM_PLAYBACK).close()
            case (.wav, .microphone): _ = try makeCaptureSource(self, period: .milliseconds(10))
            case (.wav, .speaker): break
            }
            return nil
        } catch {
            return error.isBusy ? nil : AudioError(error, device: self)
        }
    }
}
